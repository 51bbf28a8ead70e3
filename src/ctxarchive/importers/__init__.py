"""FOREIGN LOGS: what other harnesses wrote, read as sessions of ours.

Reads files and appends to sessions; compacts nothing, files nothing, asks no model.
"""
