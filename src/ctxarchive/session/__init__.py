"""WHAT HAPPENED: the append-only log of one conversation and the surface a model sees of it.

Knows nothing of search, compaction policy or any provider's API.
"""
