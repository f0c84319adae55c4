"""The old place of gymtap.proxy.views.conversation."""

from gymtap.proxy.views.conversation import *  # noqa: F403 - the same names, until nobody asks here any more
