"""The old place of gymtap.proxy.views.answers."""

from gymtap.proxy.views.answers import *  # noqa: F403 - the same names, until nobody asks here any more
