"""FOR TESTS, OURS AND USERS': deterministic models, sessions to begin with, faults to inject.

Replaces no part of the package: everything here meets a protocol that a host would meet too.
"""
