"""A miniature of Starlette: a callable application."""
