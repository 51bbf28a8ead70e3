"""The knowledge base over SQLite: ``SqliteKnowledgeBase``."""

from ctxarchive.knowledge.sqlite.store import SqliteKnowledgeBase

__all__ = ["SqliteKnowledgeBase"]
