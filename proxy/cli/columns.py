"""The old place of gymtap.proxy.views.columns."""

from gymtap.proxy.views.columns import *  # noqa: F403 - the same names, until nobody asks here any more
