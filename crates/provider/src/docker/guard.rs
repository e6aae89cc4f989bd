//! What desks may reach, as rules of the machine's packet filter.
//!
//! The Engine keeps bridges apart and has no option for the rest:
//!
//! - **The machine itself** (`INPUT`): nothing that begins on the bridge comes in; answers to what the machine began do.
//! - **What lies beyond** (`DOCKER-USER`, which the Engine leaves to others and asks before its own rules): services that hand out a
//!   cloud's credentials are never reached, private networks only where a setting opens them, name servers of the machine by their port.
//!
//! Nothing tells when somebody reloads the packet filter, so the rules are compared with what should be there every few seconds and
//! before every start.

use crate::closed::{ALWAYS, Cidr, PRIVATE};
use std::net::IpAddr;
use std::process::Stdio;
use tokio::io::AsyncWriteExt;

/// What is closed in IPv6: this machine, links, private networks, among which Amazon's service for machines is (`fd00:ec2::254`).
const IPV6: [&str; 4] = ["::1/128", "fe80::/10", "fd00:ec2::254/128", "fc00::/7"];
/// Where the Engine lets others decide.
const USER: &str = "DOCKER-USER";
/// Where the machine's name servers are written: those of systemd-resolved stand in a file of their own.
const RESOLVERS: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];

/// The rules for one bridge.
pub(super) struct Guard {
    pub(super) device: String,
    /// The chain of the fleet.
    pub(super) chain: String,
    /// Whether the bridge leads out.
    pub(super) forwards: bool,
    /// Whether it has IPv6.
    pub(super) ipv6: bool,
    pub(super) allowed: Vec<Cidr>,
}

/// How the rules were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Whole,
    Mended,
}

/// The two programs of one family.
struct Family {
    filter: &'static str,
    ipv4: bool,
}

const FAMILIES: [Family; 2] = [Family { filter: "iptables", ipv4: true }, Family { filter: "ip6tables", ipv4: false }];

impl Guard {
    /// Puts the rules where they are missing. An error means that desks on this bridge are not held.
    pub(super) async fn put(&self) -> Result<Found, String> {
        // Rules of this network namespace do nothing for a bridge in another one, as rootless Engines have it.
        if !is_here(&self.device) {
            return Err(format!("the Engine's bridge {} is not in this network namespace", self.device));
        }
        let mut found = Found::Whole;
        for family in &FAMILIES {
            match self.put_family(family).await {
                Ok(Found::Whole) => {}
                Ok(Found::Mended) => found = Found::Mended,
                // Without IPv6 on the bridge nothing goes there; the rules are for what the kernel does by itself.
                Err(reason) if !family.ipv4 && !self.ipv6 => tracing::debug!("no IPv6 rules: {reason}"),
                Err(reason) => return Err(reason),
            }
        }
        Ok(found)
    }

    async fn put_family(&self, family: &Family) -> Result<Found, String> {
        let saved = run(&format!("{}-save", family.filter), &["-t", "filter"], None).await?;
        let missing = self.missing(family, &saved);
        if missing.is_empty() {
            return Ok(Found::Whole);
        }
        // One transaction: there is no moment with half of them.
        let text = format!("*filter\n{}\nCOMMIT\n", missing.join("\n"));
        run(&format!("{}-restore", family.filter), &["-w", "--noflush"], Some(&text)).await?;
        Ok(Found::Mended)
    }

    /// What the packet filter has to be told, given what it holds.
    fn missing(&self, family: &Family, saved: &str) -> Vec<String> {
        let rules: Vec<&str> = saved.lines().map(str::trim).filter(|line| line.starts_with("-A ")).collect();
        let mut missing = Vec::new();
        if self.forwards {
            if !saved.lines().any(|line| line.starts_with(&format!(":{USER} "))) {
                missing.push(format!(":{USER} - [0:0]"));
            }
            let (own, begin) = (self.chain_rules(family), format!("-A {} ", self.chain));
            if !rules.iter().copied().filter(|rule| rule.starts_with(&begin)).eq(own.iter().map(String::as_str)) {
                // Naming a chain empties it.
                missing.push(format!(":{} - [0:0]", self.chain));
                missing.extend(own);
            }
            missing.extend(self.to_the_front(&rules, &format!("-A FORWARD -j {USER}")));
            missing.extend(self.to_the_front(&rules, &self.jump()));
        }
        missing.extend(self.to_the_front(&rules, &self.input()));
        missing
    }

    /// Moves a rule to the head of its chain, unless it is there and nothing before it decides about packets of this bridge.
    fn to_the_front(&self, rules: &[&str], rule: &str) -> Vec<String> {
        let words = rule.strip_prefix("-A ").unwrap_or(rule);
        let begin = format!("-A {} ", words.split(' ').next().unwrap_or_default());
        let chain: Vec<&str> = rules.iter().copied().filter(|other| other.starts_with(&begin)).collect();
        let times = chain.iter().filter(|other| **other == rule).count();
        if times > 0 && chain.iter().take_while(|other| **other != rule).all(|other| lets_pass(other, &self.device)) {
            return Vec::new();
        }
        let mut changes = vec![format!("-D {words}"); times];
        changes.push(format!("-I {words}"));
        changes
    }

    /// Takes them away, with the bridge.
    pub(super) async fn remove(&self) {
        // The last is what earlier versions put.
        let before = format!("-A INPUT -i {} -m conntrack --ctstate NEW -j DROP", self.device);
        for family in &FAMILIES {
            for rule in [self.input(), self.jump(), before.clone()] {
                while take(family, &rule).await.is_ok() {}
            }
            if self.forwards {
                for verb in ["-F", "-X"] {
                    let _ = run(family.filter, &["-w", verb, &self.chain], None).await;
                }
            }
        }
    }

    // Rules as `iptables-save` writes them, so that they can be compared.

    /// By direction, not by state: what began while the rule was gone does not go on when it is back.
    fn input(&self) -> String {
        format!("-A INPUT -i {} -m conntrack --ctdir ORIGINAL -j DROP", self.device)
    }

    fn jump(&self) -> String {
        format!("-A {USER} -i {} -j {}", self.device, self.chain)
    }

    fn chain_rules(&self, family: &Family) -> Vec<String> {
        let rule = |network: &str, verdict: &str| format!("-A {} -d {network} -j {verdict}", self.chain);
        let mut rules = Vec::new();
        // The Engine asks the machine's name servers in the desk's name; in clouds they are where the credentials are, at another port.
        for server in name_servers().into_iter().filter(|server| server.is_ipv4() == family.ipv4) {
            let length = if family.ipv4 { 32 } else { 128 };
            for protocol in ["udp", "tcp"] {
                let match_ = format!("-d {server}/{length} -p {protocol} -m {protocol} --dport 53");
                rules.push(format!("-A {} {match_} -j RETURN", self.chain));
            }
        }
        if !family.ipv4 {
            rules.extend(IPV6.iter().map(|network| rule(network, "DROP")));
            return rules;
        }
        rules.extend(ALWAYS.iter().map(|network| rule(&String::from(*network), "DROP")));
        rules.extend(self.allowed.iter().map(|network| match String::from(*network).as_str() {
            // The filter shows no destination where all are meant.
            "0.0.0.0/0" => format!("-A {} -j RETURN", self.chain),
            network => rule(network, "RETURN"),
        }));
        rules.extend(PRIVATE.iter().map(|network| rule(&String::from(*network), "DROP")));
        rules
    }
}

/// Whether a device is in this network namespace.
pub(super) fn is_here(device: &str) -> bool {
    nix::net::if_::if_nametoindex(device).is_ok()
}

/// Whether packets of a bridge come past a rule of others: it is for other devices, or it lets nothing through. Where it leads to
/// another chain nobody knows.
fn lets_pass(rule: &str, device: &str) -> bool {
    let words: Vec<&str> = rule.split(' ').collect();
    let after =
        |name: &str| words.iter().position(|word| *word == name).map(|at| (at, words.get(at + 1).copied().unwrap_or_default()));
    let for_others = after("-i").is_some_and(|(at, name)| {
        let same = name.strip_suffix('+').map_or(name == device, |begin| device.starts_with(begin));
        let negated = at > 0 && words[at - 1] == "!";
        same == negated
    });
    for_others || after("-j").is_some_and(|(_, verdict)| ["DROP", "REJECT", "LOG", "NFLOG"].contains(&verdict))
}

fn name_servers() -> Vec<IpAddr> {
    let mut found = Vec::new();
    for path in RESOLVERS {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let servers = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("nameserver"))
            .filter_map(|rest| rest.trim().parse::<IpAddr>().ok());
        for server in servers.filter(|server| !server.is_loopback()) {
            if !found.contains(&server) {
                found.push(server);
            }
        }
    }
    found
}

/// Whether rules can be written here, for people.
pub(super) async fn can() -> Result<(), String> {
    for family in FAMILIES.iter().filter(|family| family.ipv4) {
        run(family.filter, &["-w", "-S", "INPUT"], None).await?;
    }
    Ok(())
}

/// Takes one rule away.
async fn take(family: &Family, rule: &str) -> Result<(), String> {
    let rule = rule.strip_prefix("-A ").unwrap_or(rule);
    let words: Vec<&str> = ["-w", "-D"].into_iter().chain(rule.split(' ')).collect();
    run(family.filter, &words, None).await.map(drop)
}

async fn run(program: &str, arguments: &[&str], input: Option<&str>) -> Result<String, String> {
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|e| format!("{program} can't be started: {e}"))?;
    if let Some(mut pipe) = child.stdin.take() {
        // A program that does not read says why below.
        let _ = pipe.write_all(input.unwrap_or_default().as_bytes()).await;
    }
    let output = child.wait_with_output().await.map_err(|e| format!("{program} did not end: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{program} said: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        let allowed = vec!["10.1.0.0/16".parse().unwrap()];
        Guard { device: "hd-x-o".into(), chain: "HOTDESK-x".into(), forwards: true, ipv6: true, allowed }
    }

    #[test]
    fn what_is_whole_is_left_alone() {
        let guard = guard();
        let mut saved = format!(":{USER} - [0:0]\n-A FORWARD -j {USER}\n{}\n{}\n", guard.jump(), guard.input());
        for rule in guard.chain_rules(&FAMILIES[0]) {
            saved += &format!("{rule}\n");
        }
        assert_eq!(guard.missing(&FAMILIES[0], &saved), [""; 0]);
        let cut = saved.replace("-A HOTDESK-x -d 169.254.0.0/16 -j DROP\n", "");
        let told = guard.missing(&FAMILIES[0], &cut);
        assert_eq!(told[0], ":HOTDESK-x - [0:0]");
        assert_eq!(told[1..], guard.chain_rules(&FAMILIES[0]), "and nothing else");
    }

    #[test]
    fn nothing_that_could_let_packets_through_stands_before() {
        let guard = guard();
        let user = "-A FORWARD -j DOCKER-USER";
        let (engine, chain, accept) = ("-A FORWARD -j DOCKER-FORWARD", "-A FORWARD -j ts-forward", "-A FORWARD -j ACCEPT");
        assert!(guard.to_the_front(&[user, engine, accept], user).is_empty());
        let (drop, other) = ("-A FORWARD -s 198.51.100.7/32 -j DROP", "-A FORWARD -i eth0 -j ACCEPT");
        assert!(guard.to_the_front(&[drop, other, user, accept], user).is_empty());
        for before in [
            engine,
            chain,
            accept,
            "-A FORWARD -i hd-x-o -j ACCEPT",
            "-A FORWARD -i hd-+ -j ACCEPT",
            "-A FORWARD ! -i eth0 -j ACCEPT",
        ] {
            let told = guard.to_the_front(&[before, user], user);
            assert_eq!(told, ["-D FORWARD -j DOCKER-USER", "-I FORWARD -j DOCKER-USER"], "{before}");
        }
        assert_eq!(guard.to_the_front(&["-A DOCKER-USER -j DOCKER-USER"], user), ["-I FORWARD -j DOCKER-USER"]);
        // Of two fleets neither pushes the other back for ever; what people have put there comes after both.
        let (own, fleet, others) = (guard.jump(), "-A DOCKER-USER -i hd-y-o -j HOTDESK-y", "-A DOCKER-USER -j RETURN");
        assert!(guard.to_the_front(&[&own, fleet, others], &own).is_empty());
        assert!(guard.to_the_front(&[fleet, &own, others], &own).is_empty());
        assert!(!guard.to_the_front(&[fleet, others], &own).is_empty() && !guard.to_the_front(&[others, &own], &own).is_empty());
    }

    #[test]
    fn what_is_allowed_stands_between_what_never_is_and_what_is_private() {
        let guard = guard();
        let rules = guard.chain_rules(&FAMILIES[0]);
        let at = |text: &str| rules.iter().position(|rule| rule.contains(text)).unwrap_or_else(|| panic!("{text} in {rules:?}"));
        assert!(at("-d 169.254.0.0/16 -j DROP") < at("-d 10.1.0.0/16 -j RETURN"));
        assert!(
            at("-d 168.63.129.16/32 -j DROP") < at("-d 10.1.0.0/16 -j RETURN")
                && at("-d 10.1.0.0/16 -j RETURN") < at("-d 10.0.0.0/8 -j DROP")
        );
        let six = guard.chain_rules(&FAMILIES[1]);
        assert!(
            six.contains(&"-A HOTDESK-x -d fd00:ec2::254/128 -j DROP".to_owned()) && six.iter().all(|rule| !rule.contains("10.")),
            "{six:?}"
        );
    }
}
