"""What tests share: replicas as processes, proxies that break connections, stand-ins for the outside web."""
