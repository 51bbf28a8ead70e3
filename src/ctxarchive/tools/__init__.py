"""HOW THE MODEL ASKS: what a tool is, and ``ctx_search``, over any knowledge base."""
