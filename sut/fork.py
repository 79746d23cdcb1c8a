"""Forking a process that has threads. A lock that another thread holds at that moment would stay locked in the copy for
ever, so threads that take locks work `unforked`: a fork waits for them, and they wait for it.
"""

import os
import threading

unforked = threading.RLock()
os.register_at_fork(before=unforked.acquire, after_in_parent=unforked.release, after_in_child=unforked.release)
