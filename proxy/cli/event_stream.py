"""The old place of gymtap.proxy.views.event_stream."""

from gymtap.proxy.views.event_stream import *  # noqa: F403 - the same names, until nobody asks here any more
