"""WHAT LEAVES IS KEPT: files a span before it disappears, and says where each part of it is.

The only room below the hosts that sees both sessions and the knowledge base.
"""
