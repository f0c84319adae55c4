"""The old place of gymtap.proxy.views.call_tree."""

from gymtap.proxy.views.call_tree import *  # noqa: F403 - the same names, until nobody asks here any more
