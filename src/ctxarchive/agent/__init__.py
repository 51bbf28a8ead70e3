"""THE HOST WE SHIP: an agent loop small enough to hold in one's head.

Knows compaction by its seam only; an engine of any kind can be mounted.
"""
