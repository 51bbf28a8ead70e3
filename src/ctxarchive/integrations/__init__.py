"""OTHERS' PROGRAMS: bridges to them, each behind an extra of its own.

Nothing below depends on anything here.
"""
