"""The old place of gymtap.proxy.views.rows_view."""

from gymtap.proxy.views.rows_view import *  # noqa: F403 - the same names, until nobody asks here any more
