"""WHEN AND HOW history shrinks: the seam, the policy, and one transaction for every entry.

Knows nothing of archives or search.
"""
