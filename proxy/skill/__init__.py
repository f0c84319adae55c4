"""Our guide to debugging, written for coding agents: Markdown files, and the few lines that hand them out."""
