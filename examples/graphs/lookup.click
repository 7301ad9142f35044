// A route lookup to ask and to measure by its control socket, and no packets: in another terminal
//
//   telnet 127.0.0.1 1234
//   read rt.stat
//   read rt.lookup 192.0.2.1
//   write rt.bench_sel 1
//   read rt.bench

ControlSocket(TCP, 1234);

rt :: DXRIPLookup(
    0.0.0.0/0 0,
    192.0.2.0/24 1,
    198.51.100.0/24 2,
    203.0.113/24 3,
);

Idle -> rt;
rt => Discard, Discard, Discard, Discard;
