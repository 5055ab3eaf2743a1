# shape only, after shadow.github.io's network graph specification; not measured
graph [
  directed 0
  node [
    id 0
    label "delft"
    host_bandwidth_down "100 Mbit"
    host_bandwidth_up "40 Mbit"
  ]
  node [
    id 1
    label "riga"
    host_bandwidth_down "1 Gbit"
    host_bandwidth_up "1 Gbit"
  ]
  edge [
    source 0
    target 1
    latency "12 ms"
    jitter "1 ms"
    packet_loss 0.001
  ]
]
