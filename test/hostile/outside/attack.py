#!/usr/bin/env python3
"""Attacks a built kube-proxy from outside, as a tenant, a pod or a neighbour would.

    attack.py KUBE-PROXY MODE [ATTACK...]       MODE is nftables, nft or legacy (the variants of iptables)

It needs root. Everything happens in three network namespaces of its own: a node, a pod on it, and a neighbour that is the node's gateway
and sends whatever the node sends to it back. The proxy reads manifests, which the attacker writes. Each line of the output has
the attack, what was seen, and "held" or "HOLE". docs/threat-model.md says what should happen.
"""
import json, os, signal, socket, struct, subprocess, sys, tempfile, threading, time, urllib.error, urllib.request

PROXY, MODE, ONLY = sys.argv[1], sys.argv[2], sys.argv[3:]
TAG = f"kpa{os.getpid()}"
NODE, POD, OUT = (f"{TAG}{n}" for n in "npo")
WORK = tempfile.mkdtemp(prefix="attack-")
children, failed = [], []


def sh(line, ns=None, check=True):
    cmd = (["ip", "netns", "exec", ns] if ns else []) + ["sh", "-c", line]
    r = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    if check and r.returncode:
        raise RuntimeError(f"{line}: {r.stdout}")
    return r.stdout


def spawn(cmd, ns, log=os.devnull):
    p = subprocess.Popen(["ip", "netns", "exec", ns] + cmd, stdout=open(log, "w"), stderr=subprocess.STDOUT)
    children.append(p)
    return p


def python(code, ns, *args, setpriv=()):
    return spawn([*setpriv, sys.executable, "-c", code, *map(str, args)], ns)


def inside(ns, f):
    """Calls f in a thread in a namespace."""
    out = {}

    def run():
        fd = os.open(f"/run/netns/{ns}", os.O_RDONLY)
        os.setns(fd, 0x40000000) if hasattr(os, "setns") else __import__("ctypes").CDLL(None).setns(fd, 0x40000000)
        os.close(fd)
        try:
            out["is"] = f()
        except Exception as e:  # shown as the result
            out["is"] = e
    t = threading.Thread(target=run)
    t.start()
    t.join()
    return out["is"]


ECHO = """
import socket, threading
def udp(own):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((own, 8080))
    while True:
        d, a = s.recvfrom(2048); s.sendto(b"pod", a)
for n in 2, 3, 4: threading.Thread(target=udp, args=(f"10.244.1.{n}",), daemon=True).start()
l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind(("", 8080)); l.listen(1000)
while True:
    c, a = l.accept(); c.sendall(b"pod"); c.close()
"""


def network():
    for ns in (NODE, POD, OUT):
        sh(f"ip netns add {ns}")
        sh("ip link set lo up", ns)
    sh(f"ip link add eth0 netns {NODE} type veth peer name eth0 netns {OUT}")
    sh(f"ip link add pod0 netns {NODE} type veth peer name eth0 netns {POD}")
    sh("ip a add 10.9.0.1/24 dev eth0; ip a add 10.244.1.1/24 dev pod0; ip l set eth0 up; ip l set pod0 up; ip r add default via 10.9.0.2;"
       "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0 net.ipv4.conf.pod0.rp_filter=0", NODE)
    sh("for i in 2 3 4; do ip a add 10.244.1.$i/24 dev eth0; done; ip l set eth0 up; ip r add default via 10.244.1.1", POD)
    sh("ip a add 10.9.0.2/24 dev eth0; ip l set eth0 up; ip r add default via 10.9.0.1;"
       "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.send_redirects=0", OUT)
    python(ECHO, POD)


def service(ns, name, ip, endpoints, protocol="TCP", ports=(80,), target=8080, node="node1", version=1, **spec):
    lb = spec.pop("lb", None)
    svc = {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": ns, "name": name, "resourceVersion": str(version)},
           "spec": {"clusterIP": ip, "ports": [{"name": f"p{p}", "port": p, "protocol": protocol} for p in ports], **spec}}
    if "nodePort" in spec:
        svc["spec"]["ports"][0]["nodePort"] = svc["spec"].pop("nodePort")
        svc["spec"]["type"] = "NodePort"
    if lb:
        svc["spec"]["type"], svc["status"] = "LoadBalancer", {"loadBalancer": {"ingress": [{"ip": lb}]}}
    slices = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
              "metadata": {"namespace": ns, "name": name + "-1", "labels": {"kubernetes.io/service-name": name}},
              "ports": [{"name": f"p{p}", "port": target, "protocol": protocol} for p in ports],
              "endpoints": [{"addresses": [e], **({"nodeName": node} if node else {})} for e in endpoints]}
    return [svc, slices]


def write(name, objects):
    path = f"{WORK}/m/{name}.yaml"
    with open(f"{WORK}/{name}.new", "w") as f:
        f.write("\n---\n".join(json.dumps(o) for o in objects))
    os.rename(f"{WORK}/{name}.new", path)


def remove(name):
    os.path.exists(f"{WORK}/m/{name}.yaml") and os.remove(f"{WORK}/m/{name}.yaml")


def victim(endpoint="10.244.1.2"):
    write("victim", service("victim", "web", "10.96.0.10", [endpoint], nodePort=30080))


class Proxy:
    n = 0

    def __init__(self, *flags, mode=None):
        Proxy.n += 1
        self.log = f"{WORK}/proxy{Proxy.n}.log"
        mode = mode or MODE
        if mode != "nftables":  # as the kubelet says which variant a node uses
            sh(f"for t in iptables ip6tables; do $t-{mode} -t mangle -N KUBE-IPTABLES-HINT; done", NODE, False)
        flag = "nftables" if mode == "nftables" else "iptables"
        os.makedirs(f"{WORK}/m", exist_ok=True)
        self.p = spawn([PROXY, f"--proxy-mode={flag}", f"--manifests={WORK}/m", "--hostname-override=node1", "--cluster-cidr=10.244.0.0/16",
                        "--oom-score-adj=0", *flags], NODE, self.log)

    def stop(self):
        self.p.send_signal(signal.SIGTERM)
        self.p.wait(20)

    def text(self):
        return open(self.log).read()

    def cpu(self):
        f = open(f"/proc/{self.p.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")

    def rss(self):
        return int(open(f"/proc/{self.p.pid}/statm").read().split()[1]) * 4 // 1024


def get(path, port=10256, timeout=5, ns=None):
    def f():
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout).status
        except urllib.error.HTTPError as e:
            return e.code
    r = inside(ns or NODE, f)
    return r if isinstance(r, int) else type(r).__name__


def ask(ip="10.96.0.10", port=80, ns=None, timeout=0.3):
    def f():
        s = socket.create_connection((ip, port), timeout)
        s.settimeout(timeout)
        return s.recv(10)
    return inside(ns or OUT, f) == b"pod"


def until(f, limit=30.0):
    t = time.time()
    while time.time() - t < limit:
        if f():
            return time.time() - t
        time.sleep(0.01)
    return None


def report(name, seen, held):
    print(f"{MODE:9} {name:45} {'held' if held else 'HOLE'}  {seen}", flush=True)
    held or failed.append(name)


LOCK = """
import socket, struct, sys, time
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
try: s.bind((0, 1 << 31))
except OSError: pass
ask = struct.pack("!BBH", 0, 0, 0x6b70) + struct.pack("HHB3x", 5, 1, 1)  # NFULNL_CFG_CMD_BIND
while True:
    s.send(struct.pack("IHHII", 16 + len(ask), 0x401, 5, 1, 0) + ask)
    print("errno", -struct.unpack_from("i", s.recv(4096), 16)[0], flush=True)
    time.sleep(float(sys.argv[1]))
"""


def lock():
    """Somebody who may not change rules takes the lock, before a proxy starts."""
    for who, flags in (("uid 0 without capabilities", ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]), ("uid 65534", ["setpriv", "--reuid", "65534", "--clear-groups"]),
                       ("root of its own user namespace", ["unshare", "--user", "--map-root-user"])):
        sh(f"{PROXY} --cleanup", NODE, False)
        log = f"{WORK}/lock.log"
        squatter = spawn([*flags, sys.executable, "-c", LOCK, "0.01"], NODE, log)
        until(lambda: "errno" in open(log).read(), 10)
        p = Proxy()
        took = until(ask, 30)
        report(f"1 lock wanted by {who}", f"{open(log).read().splitlines()[0]}; served after {took and round(took, 1)} s, /healthz {get('/healthz')}", took is not None and took < 15)
        p.stop()
        squatter.kill()


def frame(dst, dport, src="10.9.0.2", sport=40000, proto=6, payload=b""):
    """Sends an IPv4 packet from the neighbour to the node's MAC, and returns whether TCP answered with SYN and ACK."""
    def f():
        mac = open("/sys/class/net/eth0/address").read().strip()
        node = bytes.fromhex(sh("cat /sys/class/net/eth0/address", NODE).strip().replace(":", ""))
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        raw.bind(("eth0", 0))
        raw.settimeout(1)
        raw.send(node + bytes.fromhex(mac.replace(":", "")) + b"\x08\x00" + packet(src, dst, proto, sport, dport, payload))
        end = time.time() + 1
        while time.time() < end:
            try:
                d = raw.recv(2048)
            except TimeoutError:
                break
            if d[12:14] == b"\x08\x00" and d[23] == proto and d[6:12] == node and (proto == 17 or d[47] & 0x12 == 0x12) and struct.unpack("!H", d[36:38])[0] == sport:
                return True
        return False
    return inside(OUT, f)


def checksum(b):
    b += b"\0" * (len(b) % 2)
    n = sum(struct.unpack(f"!{len(b)//2}H", b))
    n = (n >> 16) + (n & 0xffff)
    return ~(n + (n >> 16)) & 0xffff


def packet(src, dst, proto, sport, dport, payload=b"", ttl=64):
    s, d = socket.inet_aton(src), socket.inet_aton(dst)
    body = struct.pack("!HHIIBBHHH", sport, dport, 7, 0, 0x50, 2, 1000, 0, 0) if proto == 6 else struct.pack("!HHHH", sport, dport, 8 + len(payload), 0) + payload
    sum_at = 16 if proto == 6 else 6
    c = checksum(s + d + struct.pack("!BBH", 0, proto, len(body)) + body)
    body = body[:sum_at] + struct.pack("!H", c) + body[sum_at + 2:]
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 1, 0, ttl, proto, 0, s, d)
    return ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:] + body


def loopback():
    secret = python('import socket\nl=socket.socket();l.bind(("127.0.0.1",7000));l.listen(9)\nwhile 1: l.accept()[0].sendall(b"secret")', NODE)
    p = Proxy("--nodeport-addresses=127.0.0.0/8")
    ok = until(lambda: inside(NODE, lambda: socket.create_connection(("127.0.0.1", 30080), .3).recv(9)) == b"pod", 15) if MODE != "nftables" else until(ask)
    for port in (30080, 7000, 10249):
        for src in ("10.9.0.2", "127.0.0.1", "10.96.0.10"):
            report(f"5 frame to 127.0.0.1:{port} from {src}", "answered" if (a := frame("127.0.0.1", port, src, 41000 + port % 97)) else "nothing", not a and ok is not None)
    p.stop()
    if MODE != "nftables":
        sh("nft flush ruleset" if MODE == "nft" else "iptables-legacy -F; iptables-legacy -t nat -F", NODE)
        p = Proxy(mode="nftables")
        until(ask)
        report("5b after a flush, then nftables mode: :7000", "answered" if (a := frame("127.0.0.1", 7000, "10.9.0.2", 42001)) else "nothing", not a)
        p.stop()
        sh(f"{PROXY} --cleanup", NODE, False)
    sh("sysctl -qw net.ipv4.conf.all.route_localnet=0", NODE)
    secret.kill()


def affinity():
    sticky = {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}}
    sh("for i in $(seq 3 12); do ip a add 10.9.0.$i/24 dev eth0; done", OUT)
    write("sticky", service("victim", "sticky", "10.96.0.20", ["10.244.1.2", "10.244.1.3", "10.244.1.4"], protocol="UDP", **sticky))
    write("mine", service("tenant", "mine", "10.96.6.1", ["10.244.1.2"], protocol="UDP", target=9090, nodePort=30099, **sticky))
    p = Proxy()
    until(ask)
    took = time.time()

    def flood():
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        raw.bind(("eth0", 0))
        mac = bytes.fromhex(open("/sys/class/net/eth0/address").read().strip().replace(":", ""))
        node = bytes.fromhex(sh("cat /sys/class/net/eth0/address", NODE).strip().replace(":", ""))
        for i in range(int(os.environ.get("FLOOD","66000"))):
            raw.send(node + mac + b"\x08\x00" + packet(f"11.{i >> 16}.{i >> 8 & 255}.{i & 255}", "10.9.0.1", 17, 5000, 30099, b"x"))
    inside(OUT, flood)
    sent = time.time() - took
    time.sleep(4)  # the pod answers the flood first

    def answers(src):
        def f():
            seen = set()
            for _ in range(12):
                s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                s.bind((src, 0))
                s.settimeout(3)
                s.sendto(b"x", ("10.96.0.20", 80))
                s.recv(9)
                s.close()
            return seen
        return inside(OUT, f)
    errors = [a for a in (answers(f"10.9.0.{i}") for i in range(3, 13)) if isinstance(a, Exception)]
    lines = sh("conntrack -L -p udp -d 10.96.0.20 2>/dev/null || true; grep 10.96.0.20 /proc/net/nf_conntrack 2>/dev/null || true", NODE)
    to = {}
    for line in lines.splitlines():
        w = [x for x in line.split() if x.startswith(("src=", "dst="))]
        if len(w) == 4 and w[1] == "dst=10.96.0.20":
            to.setdefault(w[0], set()).add(w[2])
    moved = [c for c, e in to.items() if len(e) > 1]
    report("3 66,000 clients of another Service", f"sent in {sent:.1f} s, {len(to)} clients seen, {len(moved)} changed endpoints, without answer: {errors}", len(to) == 10 and not moved and not errors)
    t = time.time()
    write("mine", service("tenant", "mine", "10.96.6.1", ["10.244.1.3"], protocol="UDP", target=9090, nodePort=30099, version=2, **sticky))
    victim("10.244.1.77")
    gone = until(lambda: not ask(), 10)
    report("3 removing its endpoint, another's change", f"in force after {gone and round(gone, 2)} s", gone is not None and gone < 2)
    victim()
    remove("sticky"), remove("mine")
    p.stop()


def connections():
    p = Proxy()
    until(ask)
    held = python("""
import socket, time, sys
all = []
for n in range(1500):
    try:
        s = socket.create_connection(("10.9.0.1", 10256), 2); s.sendall(b"GET /healthz HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n"); all.append(s)
    except OSError: pass
time.sleep(60)
""", OUT)
    time.sleep(8)
    fds = len(os.listdir(f"/proc/{p.p.pid}/fd"))
    code = get("/healthz")
    report("4 1,500 idle connections from outside", f"/healthz {code}, {fds} descriptors, {p.rss()} MB", code == 200 and fds < 1100)
    sh("nft delete table ip kube-proxy" if MODE == "nftables" else f"iptables-{MODE} -t nat -F KUBE-SERVICES", NODE)
    took = until(lambda: ask(), 10)
    report("4 the rules are repaired meanwhile", f"after {took and round(took, 2)} s", took is not None)
    held.kill()
    p.stop()


def flows():
    """A client that was served keeps sending UDP datagrams when it is excluded."""
    for how, node, spec in (("source ranges exclude it", "node1", {"loadBalancerSourceRanges": ["192.0.2.99/32"]}),
                            ("externalTrafficPolicy is Local, all endpoints elsewhere", "node2", {"externalTrafficPolicy": "Local"})):
        def udp(**changed):
            write("udp", service("victim", "udp", "10.96.0.30", ["10.244.1.2"], "UDP", node=node, lb="192.0.2.9", **changed))

        def client():
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.settimeout(0.3)
            s.connect(("192.0.2.9", 80))

            def answered():
                try:
                    s.send(b"x")
                    return s.recv(9) == b"pod"
                except OSError:
                    return False
            served = until(answered, 20) is not None
            udp(**spec)
            return served, until(lambda: not answered() and not answered(), 10), sum(answered() for _ in range(10))
        udp()
        p = Proxy()
        served, ended, later = inside(OUT, client)
        report(f"6 an open UDP flow, {how}", f"served before: {served}; ended after {ended and round(ended, 2)} s, {later} answers later", served and ended is not None and not later)
        p.stop()
    remove("udp")


def rebinding():
    """A page of the node's browser, whose name leads to the node's loopback address, reads port 10249."""
    p = Proxy()
    until(lambda: get("/healthz", 10249) == 200)
    for page in ("/", "/metrics", "/proxyMode", "/configz", "/api/v1alpha1/services", "/debug/pprof/"):
        def read(page=page):
            request = urllib.request.Request(f"http://127.0.0.1:10249{page}", headers={"Host": "evil.example:10249"})
            try:
                return urllib.request.urlopen(request, timeout=5).status
            except urllib.error.HTTPError as e:
                return e.code
        code = inside(NODE, read)
        report(f"10 DNS rebinding, {page}", code, isinstance(code, int) and code >= 400)
    p.stop()


def counted():
    return int(sh("cat /sys/class/net/eth0/statistics/rx_packets", OUT))


def guarded_loops():
    """As loops, but the range of cluster IPs is known."""
    write("range", [{"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16"]}}])
    loops(guarded=True)
    remove("range")


def loops(guarded=False):
    p = Proxy()
    cases = {
        "7 Services that are each other's cluster IP": (service("tenant", "a", "10.96.7.1", ["10.96.7.2"], "UDP", target=80) + service("tenant", "b", "10.96.7.2", ["10.96.7.1"], "UDP", target=80), "10.96.7.1"),
        "7 a Service that is its own cluster IP": (service("tenant", "a", "10.96.7.1", ["10.96.7.1"], "UDP", target=80), "10.96.7.1"),
        "7 Services that are each other's LB IP": (service("tenant", "a", "10.96.7.1", ["192.0.2.2"], "UDP", target=80, lb="192.0.2.1") + service("tenant", "b", "10.96.7.2", ["192.0.2.1"], "UDP", target=80, lb="192.0.2.2"), "192.0.2.1"),
        "7 a Service that is its own LB IP": (service("tenant", "a", "10.96.7.1", ["192.0.2.1"], "UDP", target=80, lb="192.0.2.1"), "192.0.2.1"),
        "7 the same, externalTrafficPolicy: Local": (service("tenant", "a", "10.96.7.1", ["192.0.2.2"], "UDP", target=80, lb="192.0.2.1", externalTrafficPolicy="Local") + service("tenant", "b", "10.96.7.2", ["192.0.2.1"], "UDP", target=80, lb="192.0.2.2", externalTrafficPolicy="Local"), "192.0.2.1"),
        "7 cluster IPs with LB IPs as endpoints": (service("tenant", "a", "10.96.7.1", ["192.0.2.2"], "UDP", target=80, lb="192.0.2.1", externalTrafficPolicy="Local") + service("tenant", "b", "10.96.7.2", ["192.0.2.1"], "UDP", target=80, lb="192.0.2.2", externalTrafficPolicy="Local"), "10.96.7.1"),
        "7 an endpoint that is the victim's cluster IP": (service("tenant", "a", "10.96.7.1", ["10.96.0.10"], "UDP", target=80), "10.96.7.1"),
    }
    for name, (objects, to) in cases.items():
        write("loops", objects)
        until(ask)
        time.sleep(2.5)
        for who, ns in (("pod", POD), ("neighbour", OUT), ("node", NODE)):
            sh("ip neigh show >/dev/null", OUT)
            before = counted()

            def f():
                s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                s.sendto(b"x", (to, 80))
            inside(ns, f)
            time.sleep(1.5)
            n = counted() - before
            time.sleep(1)
            still = counted() - before - n
            report(f"{name}, from {who}", f"{n} packets reach the gateway, {still} a second later", n <= 70 and still <= 4)
    remove("loops")
    if MODE != "nftables" and not guarded:
        return  # docs/differences.md: iptables mode drops packets from cluster IPs if their range is known
    before = counted()
    frame("10.96.0.10", 80, "10.96.0.10", 80, 17, b"x")
    time.sleep(1.5)
    n = counted() - before
    report("7 a datagram from a cluster IP to itself", f"{n} packets", n < 10)
    p.stop()


def readers():
    write("big", service("m", "big", "10.96.5.5", [f"10.244.{i >> 8}.{i & 255}" for i in range(3000)], ports=range(1, 9)))
    p = Proxy()
    until(ask)
    time.sleep(3)
    held = python("""
import socket, time
all = []
for n in range(12):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1); s.connect(("127.0.0.1", 10249))
    s.sendall(b"GET /api/v1alpha1/services/m/big HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"); all.append(s)
time.sleep(60)
""", NODE, setpriv=["setpriv", "--reuid", "65534", "--clear-groups"])
    time.sleep(2)
    t = time.time()
    code = get("/api/v1alpha1/services/m/big", 10249, 30)
    took = time.time() - t
    report("8 twelve readers of uid 65534 that do not read", f"root gets {code} after {took:.1f} s; /healthz {get('/healthz')}", code == 200 and took < 10)
    held.kill()
    remove("big")
    p.stop()


def fifos():
    p = Proxy()
    until(ask)
    end = time.time() + 4
    os.mkfifo(f"{WORK}/fifo")
    while time.time() < end:
        write("flip", service("tenant", "f", "10.96.3.3", ["10.244.1.2"]))
        os.link(f"{WORK}/fifo", f"{WORK}/fifo2")
        os.rename(f"{WORK}/fifo2", f"{WORK}/m/flip.yaml")
    os.symlink("/proc/kmsg", f"{WORK}/m/kmsg.yaml")
    os.symlink("/dev/zero", f"{WORK}/m/zero.yaml")
    time.sleep(1)
    victim("10.244.1.77")
    took = until(lambda: not ask(), 15)
    report("9 FIFO in a rename race, /proc/kmsg, /dev/zero", f"another file's change after {took and round(took, 2)} s, /healthz {get('/healthz')}", took is not None)
    victim()
    p.stop()
    p = Proxy()
    took = until(ask, 20)
    report("9 the same at a start", f"served after {took and round(took, 1)} s, /healthz {get('/healthz')}", took is not None)
    for name in ("flip", "kmsg", "zero"):
        os.remove(f"{WORK}/m/{name}.yaml")
    p.stop()


def floods():
    p = Proxy()
    until(ask)
    time.sleep(1)
    size, n, end = os.path.getsize(p.log), 0, time.time() + 8
    while time.time() < end:
        n += 1
        write("bad", service("tenant", "bad", "10.96.4.4", [["127.0.0.1", "224.0.0.1"][n % 2]], version=n))
    rate = (os.path.getsize(p.log) - size) / 8
    report("10 invalid versions of one Service", f"{n / 8:.0f} a second; {rate:.0f} bytes of log a second", rate < 5000)
    remove("bad")
    cpu, t = p.cpu(), time.time()
    loop = python(LOCK, NODE, 0, setpriv=["setpriv", "--reuid", "65534", "--clear-groups"])
    time.sleep(8)
    share = (p.cpu() - cpu) / (time.time() - t)
    loop.kill()
    report("10 uid 65534 asks for the lock in a loop", f"{100 * share:.1f} % of a core", share < 0.05)
    p.stop()


def monster():
    ports, ends = (400, 1000) if MODE == "nftables" else (20, 250)
    big = [service("tenant", "monster", "10.96.8.8", [f"10.245.{i >> 8}.{i & 255}" for i in range(ends)], proto, range(1, ports + 1), node=None) for proto in ("TCP", "UDP")]
    write("monster", big[0])
    p = Proxy()
    until(ask)
    time.sleep(3)
    stop, cpu, t0 = threading.Event(), p.cpu(), time.time()

    def flip():
        i = 0
        while not stop.is_set():
            i += 1
            write("monster", big[i % 2])
            stop.wait(0.5)
    th = threading.Thread(target=flip)
    th.start()
    times = []
    for i in range(12):
        victim("10.244.1.77")
        times.append(until(lambda: not ask(timeout=.1), 20) or 20)
        time.sleep(1)
        victim()
        times.append(until(lambda: ask(timeout=.1), 20) or 20)
        time.sleep(1)
    stop.set()
    th.join()
    times.sort()
    share = (p.cpu() - cpu) / (time.time() - t0)
    report(f"2 {ports} ports x {ends} endpoints flip (from the file on)", f"another's change p50 {times[12]:.2f}, most {times[-1]:.2f} s; {share:.2f} of a core with decoding", times[-1] < 4)
    remove("monster")
    p.stop()


ATTACKS = {f.__name__: f for f in (lock, monster, affinity, connections, loopback, flows, loops, guarded_loops, readers, fifos, floods, rebinding)}

signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # timeout(1): what was started ends
try:
    network()
    os.makedirs(f"{WORK}/m")
    victim()
    for name in ONLY or ATTACKS:
        try:
            ATTACKS[name]()
        except Exception as e:  # the next attack goes on
            report(name, f"{type(e).__name__}: {e}", False)
        for c in children[1:]:
            c.poll() is None and c.kill()
finally:
    for c in children:
        c.poll() is None and c.kill()
        c.wait()
    for ns in (NODE, POD, OUT):
        sh(f"ip netns del {ns}", check=False)
    print(f"logs in {WORK}")
sys.exit(bool(failed))
