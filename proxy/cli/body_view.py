"""The old place of gymtap.proxy.views.body_view."""

from gymtap.proxy.views.body_view import *  # noqa: F403 - the same names, until nobody asks here any more
