"""A miniature of Gym's package: the two modules that gymtap's hooks look at."""
