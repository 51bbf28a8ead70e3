"""A session's life as one HTML page: values gathered from a log or an archive, and the page."""
