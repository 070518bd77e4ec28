"""Tools: each file makes one kind of thing fit the `Tool` port."""
