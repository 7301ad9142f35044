elementclass Back { Idle -> input; output -> Discard }
