"""The old place of gymtap.proxy.views.words."""

from gymtap.proxy.views.words import *  # noqa: F403 - the same names, until nobody asks here any more
