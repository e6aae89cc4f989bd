//! What projects may spend.

use super::{Money, day, micro, units};
use crate::error::{Error, Result};
use crate::store::Alert;
use hotdesk_api::fleet::Budget;
use jiff::Timestamp;
use serde_json::json;

/// What a look at all budgets found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// Projects whose money is spent, and why; their desks are to be stopped.
    pub over: Vec<(String, String)>,
    /// Thresholds that were crossed since the last look of any orchestrator: `(project, words for the event log)`.
    pub crossed: Vec<(String, String)>,
}

/// One limit of a budget, and how far it is used.
struct Limit {
    /// A day, or `total`.
    period: String,
    micro: i64,
    spent: i64,
}

impl Money {
    /// Sets what a project may spend; a budget without limits is removed.
    pub async fn set_budget(&self, budget: &Budget) -> Result<()> {
        check(budget)?;
        if budget.per_day.is_none() && budget.total.is_none() {
            return self.inner.store.remove_budget(&budget.project).await;
        }
        self.inner.store.put_budget(budget).await
    }

    /// Refuses what would cost money if the project has none left.
    pub async fn can_spend(&self, project: &str, now_ms: i64) -> Result<()> {
        match self.over_budget(project, now_ms).await? {
            Some(why) => Err(Error::Budget(why)),
            None => Ok(()),
        }
    }

    /// Why a project may spend nothing more, if so. As of the last tick.
    pub async fn over_budget(&self, project: &str, now_ms: i64) -> Result<Option<String>> {
        let budgets = self.inner.store.budgets().await?;
        let Some(budget) = budgets.into_iter().find(|budget| budget.project == project) else { return Ok(None) };
        let limits = self.limits(&budget, now_ms).await?;
        Ok(limits.iter().find(|limit| limit.spent >= limit.micro).map(|limit| self.spent_words(project, limit)))
    }

    /// Looks at all budgets, notes each threshold that was crossed once, and has its webhook called in the background.
    pub async fn look(&self, now_ms: i64) -> Result<Look> {
        let mut look = Look::default();
        for budget in self.inner.store.budgets().await? {
            let mut over = None;
            for limit in self.limits(&budget, now_ms).await? {
                let near = limit.spent as f64 >= limit.micro as f64 * budget.alert_at;
                let at_end = limit.spent >= limit.micro;
                if near && budget.alert_at < 1.0 {
                    let words = format!(
                        "project {} has spent {} of the {} {} that it may spend {}",
                        budget.project,
                        units(limit.spent),
                        units(limit.micro),
                        self.inner.currency,
                        limit.words(),
                    );
                    self.note(&budget, &limit, "alert", words, now_ms, &mut look).await?;
                }
                if at_end {
                    let words = self.spent_words(&budget.project, &limit);
                    over.get_or_insert_with(|| words.clone());
                    self.note(&budget, &limit, "spent", words, now_ms, &mut look).await?;
                }
            }
            look.over.extend(over.map(|why| (budget.project, why)));
        }
        Ok(look)
    }

    async fn limits(&self, budget: &Budget, now_ms: i64) -> Result<Vec<Limit>> {
        let today = day(now_ms);
        let (spent_today, spent) = self.inner.store.spent_by(&budget.project, &today).await?;
        let daily = budget.per_day.map(|limit| Limit { period: today, micro: micro(limit), spent: spent_today });
        let total = budget.total.map(|limit| Limit { period: "total".into(), micro: micro(limit), spent });
        Ok([daily, total].into_iter().flatten().collect())
    }

    fn spent_words(&self, project: &str, limit: &Limit) -> String {
        let help = if limit.period == "total" { "raise it" } else { "raise it, or wait for the next day (UTC)" };
        let (amount, currency) = (units(limit.micro), &self.inner.currency);
        format!("the budget of project {project} is spent: {amount} {currency} {}; {help}", limit.words())
    }

    /// Writes a crossed threshold down, if nobody did before. Another limit is another threshold.
    async fn note(
        &self,
        budget: &Budget,
        limit: &Limit,
        reached: &str,
        words: String,
        now_ms: i64,
        look: &mut Look,
    ) -> Result<()> {
        let share = if reached == "alert" { budget.alert_at } else { 1.0 };
        let id = format!("{} {} {share} of {}", budget.project, limit.period, units(limit.micro));
        let message = json!({
            "id": id,
            "kind": "budget",
            "reached": reached,
            "project": budget.project,
            "period": limit.period,
            "spent": units(limit.spent),
            "budget": units(limit.micro),
            "currency": self.inner.currency,
            "at": Timestamp::from_millisecond(now_ms).map(|at| at.to_string()).unwrap_or_default(),
            "text": words,
        });
        let webhook = budget.webhook.clone().unwrap_or_default();
        let silent = webhook.is_empty();
        let alert = Alert { id, at_ms: now_ms, project: budget.project.clone(), webhook, message };
        if self.inner.store.put_alert(&alert).await? {
            if silent {
                self.inner.store.alert_done(&alert.id).await?;
            } else {
                self.inner.news.notify_one();
            }
            look.crossed.push((alert.project, words));
        }
        Ok(())
    }
}

impl Limit {
    fn words(&self) -> String {
        if self.period == "total" { "in all".into() } else { format!("on {}", self.period) }
    }
}

fn check(budget: &Budget) -> Result<()> {
    let bad = |why: &str| Err(Error::Invalid(format!("this budget is not possible: {why}")));
    if budget.project.is_empty() || budget.project.contains('\0') {
        return bad("it names no project");
    }
    if [budget.per_day, budget.total].into_iter().flatten().any(|limit| !limit.is_finite() || limit < 0.0) {
        return bad("a limit is a number that is not negative");
    }
    if !(budget.alert_at > 0.0 && budget.alert_at <= 1.0) {
        return bad("alert_at is a share above 0, at most 1");
    }
    if let Some(webhook) = budget.webhook.as_deref().filter(|webhook| !webhook.is_empty()) {
        let good = reqwest::Url::parse(webhook).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if !good {
            return bad("its webhook is no http or https address");
        }
    }
    Ok(())
}
