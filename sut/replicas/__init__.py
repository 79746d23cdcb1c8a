"""Multiple engines behind one LoadGen: each is a replica in its own process.

The run sees one engine, the pool (pool.py). The pool exchanges messages (messages.py) over sockets (transport.py) with
the replicas' processes (replica.py), which are children of the run (processes.py) or run on nodes of Ray (cluster.py).
"""
