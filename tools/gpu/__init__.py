"""Measurements on a GPU machine that is rented or lent for half an hour (README.md)."""
