"""The old place of gymtap.proxy.views.marks."""

from gymtap.proxy.views.marks import *  # noqa: F403 - the same names, until nobody asks here any more
