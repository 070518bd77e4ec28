"""Outside: each adapter fills one port with one vendor's library and imports no other adapter."""
