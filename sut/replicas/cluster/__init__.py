"""Replicas on the nodes of a Ray cluster.

Ray places them, watches them, ends them and brings what they print; queries go by the transport that replicas on one
machine have (sut/replicas/transport.py). Ray is imported in processes of its own only, which a leg and its parent ask
(cluster.py): survey.py looks at the nodes, driver.py keeps a leg's replicas. What runs on the nodes is in actors.py.
"""
