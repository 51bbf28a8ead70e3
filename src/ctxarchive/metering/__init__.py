"""WHAT IT COSTS: one meter prices everything, so that its numbers can be subtracted.

Reads sessions, changes none.
"""
