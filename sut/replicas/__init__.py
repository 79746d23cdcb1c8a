"""Several engines behind one LoadGen: each a replica in a process of its own.

To the leg all of them are one engine (pool.py). What they say to each other is in messages.py; a replica's
process is replica.py.
"""
