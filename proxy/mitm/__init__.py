"""The second engine, on mitmproxy: for what a reverse proxy cannot see. Only this folder knows mitmproxy."""
