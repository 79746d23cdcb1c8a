"""Several engines behind one LoadGen: each a replica in a process of its own.

To the run they are one engine (pool.py), which exchanges messages (messages.py) over sockets (transport.py) with the
replicas' processes (replica.py). These are children of the run (processes.py) or run on nodes of Ray (cluster.py).
"""
