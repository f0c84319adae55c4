"""A miniature of Gym, to see gymtap work without installing anything."""
