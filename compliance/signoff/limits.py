"""Limits of the sign-off."""

# B-4: how late LoadGen issued, from its schedule (Server) or from the completion before (SingleStream). Calibrated on
# legs of the dummy engine on a shared machine of two cores, which stay below 30 ms.
LATE_ISSUE_P99_MS = 100.0
# P-6: what stops a machine makes LoadGen late, and it then issues all that is overdue in a row, each within 0.02 ms.
OFF_SCHEDULE_MS = 50.0
AT_ONCE_SHARE = 0.5  # of the time between two that are due: times of another schedule are as far apart as these
AT_ONCE_MS = 0.2  # a machine that cannot keep up takes as long for each as it can
# B-4: half of what others may use beside a leg, more on one side of a comparison than on the other, is a difference
# that is not the lever's.
FOREIGN_DIFFERENCE = 0.05
LEAST_WINDOW_S = 1.0  # the system counts in steps of 10 ms, for each core and each process: shorter windows say nothing

# P-4: two readings of one clock do not change places; honest legs keep at least 2 µs.
CLOCK_READ_NS = 50_000
CLOCK_SET_NS = 5_000_000  # by as much an NTP daemon sets a clock once; each two readings around it change places
STAMP_MEDIAN_NS = 5_000_000  # our stamps of an answer, from LoadGen's; the medians of honest legs were 3.3 ms at most
FEW_SAMPLES = 16  # below this many a share says nothing
# H-8: the median time per output token, and in SingleStream the time to first token, against the accuracy leg's at the
# same load. Honest pairs lie within 2 % with an engine that only waits; a busy machine slows one of them down.
FASTER_FLAG = 1.5
FASTER_FAIL = 5.0
IDLE_LEAST = 0.01  # of the cores: so much is left to a leg on the busiest machine
REPLICA_FASTER_FLAG = 2.0  # H-5: against the other replicas; one that shares its cores is that much slower

MOST_DAYS_APART = 183  # H-9: between the first leg of a bundle and the last; a round takes half a year

# G-1: a side effect is inert when neither leg came near what it changes.
KV_POOL_SHARE = 0.9
