elementclass All { __REST__ $args | Idle($args) }
