"""What both faces draw and say: rows, call trees, exchanges and bodies as renderables, the words for them."""
