//! Texts for models: errors as sentences, long texts cut with a note.

use hotdesk_api::Problem;

/// Characters of a text that a model is given at once: about 8,000 tokens.
pub(super) const LONGEST_TEXT: usize = 30_000;

/// A problem as a sentence, with what to do next in the words of the tools.
pub(super) fn sentence(problem: &Problem) -> String {
    let what = if problem.detail.is_empty() { &problem.title } else { &problem.detail };
    let hint = match problem.code.as_str() {
        "not_running" => Some("start_desk starts a stopped desk; one that is on its way needs a moment"),
        "not_found" if what.contains("desk") => Some("list_desks shows the desks that there are"),
        "person_is_driving" => Some("screenshots and lists work meanwhile; look now and then, and go on when the person is done"),
        "desk_failed" => Some("reset_desk tries anew, delete_desk removes it"),
        // Ours name tools, the API's name addresses, which a model can't call.
        _ => problem.hint.as_deref().filter(|hint| !hint.contains("/v1/")),
    };
    match hint {
        Some(hint) => format!("{what}. {}", capital(hint)),
        None => what.clone(),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    // A word in backticks, or the name of a tool, is written as it is.
    match letters.next() {
        Some(first) if !text.split_whitespace().next().is_some_and(|word| word.contains('_')) => {
            first.to_uppercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

/// The beginning and the end, with a note of what is missing between them: errors stand at the end.
pub(super) fn cut(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let (head, tail) = (most * 2 / 3, most / 3);
    let at = |n: usize| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    let left_out = length - head - tail;
    format!("{}\n[… {left_out} characters left out …]\n{}", &text[..at(head)], &text[at(length - tail)..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialects::native::problem;

    #[test]
    fn long_texts_are_cut_in_the_middle() {
        assert_eq!(cut("äöü", 3), "äöü");
        let text: String = (0..100).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
        let short = cut(&text, 30);
        assert!(short.starts_with(&text[..20]) && short.ends_with(&text[90..]), "{short}");
        assert!(short.contains("70 characters left out"), "{short}");
        assert!(cut(&"ä".repeat(100), 10).contains("ää\n[… 91 characters left out …]\nää"));
    }

    #[test]
    fn problems_become_sentences_in_the_words_of_tools() {
        let mut one = problem(404, "not_found", "there is no desk `x`");
        one.hint = Some("`GET /v1/desks` lists them".into());
        assert_eq!(sentence(&one), "there is no desk `x`. list_desks shows the desks that there are");
        one = problem(409, "conflict", "the name is taken");
        one.hint = Some("take another".into());
        assert_eq!(sentence(&one), "the name is taken. Take another");
    }

    #[test]
    fn a_model_is_told_what_to_do_while_a_person_drives() {
        let mut refused = problem(423, "person_is_driving", "Ada is driving this desk");
        refused.hint = Some("act again once `/v1/lease` says that the agent drives".into());
        let text = sentence(&refused);
        assert!(
            text.starts_with("Ada is driving this desk. Screenshots and lists work meanwhile") && !text.contains("/v1/"),
            "{text}"
        );
    }
}
