"""The old place of gymtap.proxy.views.plain."""

from gymtap.proxy.views.plain import *  # noqa: F403 - the same names, until nobody asks here any more
