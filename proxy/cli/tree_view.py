"""The old place of gymtap.proxy.views.tree_view."""

from gymtap.proxy.views.tree_view import *  # noqa: F403 - the same names, until nobody asks here any more
