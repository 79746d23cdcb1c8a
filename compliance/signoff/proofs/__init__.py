"""Proofs on a leg, and on legs together: what a finding is worth may be less than its rule."""
