"""HOW THE MODEL ASKS: ``ctx_search``, over any knowledge base."""
