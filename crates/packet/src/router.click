// The built-in router: every packet that a port receives, to the port that its route names. Interface features are put
// in where they are used: their elements are not here.
//
// Errors, fragments and packets that waited for a link address re-enter the path, so that they are routed
// like any other; those edges close cycles, on which rounds are counted.

FromPorts -> ether_input :: EtherInput;

ether_input [ip4] -> ip4_input :: IP4Input;
ether_input [ip6] -> ip6_input :: IP6Input;
ether_input [fill4] -> fill4 :: FillChecksum -> ip4_input;
ether_input [fill6] -> fill6 :: FillChecksum -> ip6_input;

ip4_input [forward] -> ip4_lookup :: IP4FIBLookup -> ip4_next_hop :: IP4NextHop;
ip6_input [forward] -> ip6_lookup :: IP6FIBLookup -> ip6_next_hop :: IP6NextHop;

ip4_next_hop [out] -> transmit :: ToPorts;
ip6_next_hop [out] -> transmit;

ip4_input [options] -> ip4_options :: IP4Options;
ip4_options [forward] -> ip4_lookup;

ip4_next_hop [fragment] -> ip4_fragment :: IP4Fragment -> [1] ip4_next_hop;

resolver :: Resolver;
ip4_next_hop [unresolved] -> resolver;
ip6_next_hop [unresolved] -> resolver;
resolver [ip4] -> ip4_lookup;
resolver [ip6] -> ip6_lookup;

icmp4_error :: ICMP4Errors;
ip4_input [error] -> icmp4_error;
ip4_options [error] -> icmp4_error;
ip4_next_hop [error] -> icmp4_error;
resolver [error4] -> icmp4_error;
icmp4_error [lookup] -> ip4_lookup;

icmp6_error :: ICMP6Errors;
ip6_input [error] -> icmp6_error;
ip6_next_hop [error] -> icmp6_error;
resolver [error6] -> icmp6_error;
icmp6_error [lookup] -> ip6_lookup;
icmp6_error [link] -> transmit;
