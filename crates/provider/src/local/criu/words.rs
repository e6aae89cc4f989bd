//! What CRIU's log says, in words that help.

/// Said always, by those who lack a right that is not needed.
const HARMLESS: &[&str] = &["Can't setup RLIMIT_NOFILE for self", "rlimit: Can't setup"];

/// What is known, and what can be done about it.
const KNOWN: &[(&str, &str)] = &[
    (
        "nested pid namespace",
        "a program has made namespaces of its own, which can't be saved; a browser does that unless it is started with --no-sandbox",
    ),
    (
        "ctty inheritance detected",
        "a program in a terminal holds /dev/tty, which this CRIU can't save; the one that scripts/criu builds can",
    ),
    ("External socket is used", "a program is connected with something outside the desk"),
    ("Unix socket", "a program is connected with something outside the desk"),
    ("without peer", "a program is connected with something outside the desk"),
    ("Can't dump ghost file", "a program holds a deleted file that is too large to be saved"),
    ("io_uring", "a program uses io_uring, which can't be saved"),
    ("userfaultfd", "a program uses userfaultfd, which can't be saved"),
    ("Unexpected EOF on", "the saved state is not whole"),
    ("Magic doesn't match", "the saved state is damaged"),
    ("No space left on device", "the disk is full"),
];

/// The error of a log as one sentence, if it has one.
pub(super) fn errors(log: &str) -> Option<String> {
    let errors: Vec<_> = log
        .lines()
        .filter_map(|line| line.find("Error (").map(|at| line.get(at..).unwrap_or(line)))
        .filter(|line| !HARMLESS.iter().any(|harmless| line.contains(harmless)))
        .collect();
    let first = *errors.first()?;
    let known = KNOWN.iter().find(|(sign, _)| errors.iter().any(|line| line.contains(sign))).map(|(_, meaning)| *meaning);
    // `Error (file.c:12): part: what happened`
    let plain = first.split_once("): ").map_or(first, |(_, rest)| rest).trim();
    Some(match known {
        Some(meaning) => format!("{meaning} ({plain})"),
        None => plain.to_owned(),
    })
}

/// Whether another try may go well: somebody was about to come in, or the kernel's list of sockets, which is read in pieces and
/// is one for the whole machine, changed under the reader and lacked one.
pub(super) fn may_pass(log: &str) -> bool {
    ["in-flight", "Dangling connection", "without peer", "External socket", "Unix socket"].iter().any(|sign| log.contains(sign))
}

pub(super) fn is_full(log: &str) -> bool {
    log.contains("No space left on device") || log.contains("Disk quota exceeded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_that_matters_is_told() {
        let log = "Warn  (criu/kerndat.c:1): no\n\
                   Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted\n\
                   pie: 1: Error (criu/pie/parasite.c:641): can't dump unprivileged task\n\
                   Error (criu/cr-dump.c:1975): Dumping FAILED.\n";
        assert_eq!(errors(log).unwrap(), "can't dump unprivileged task");
        let log =
            "Error (criu/namespaces.c:1): Can't dump nested pid namespace for 12\nError (criu/cr-dump.c:1975): Dumping FAILED.\n";
        assert!(errors(log).unwrap().contains("--no-sandbox"));
        assert_eq!(errors("Warn (x): y\n"), None);
        assert!(may_pass("Error (criu/sk-unix.c:1): unix: Unix socket 8869395 not found\n") && !may_pass(log));
    }
}
