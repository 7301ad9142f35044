elementclass Two { input [0] -> Discard; input [2] -> Discard }
