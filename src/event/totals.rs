//! What a session has used so far: tokens, and what they cost where prices are configured.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Usage;

/// Parts of one unit of the provider's currency.
const NANO: f64 = 1e9;

/// An amount in the provider's currency, counted in billionths so that sums are exact. A decimal number in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(u64);

impl Cost {
    /// An amount; what is negative or no number is 0.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast of a float saturates, which is what an amount beyond all bounds should do"
    )]
    pub fn new(amount: f64) -> Self {
        Self((amount * NANO).round() as u64)
    }

    /// What is left of it after another amount; the smallest there is when nothing is.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0).max(1))
    }

    /// The amount as a number.
    #[expect(clippy::cast_precision_loss, reason = "shown to people; the count itself is exact")]
    pub fn amount(self) -> f64 {
        self.0 as f64 / NANO
    }
}

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.amount())
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(Self::new)
    }
}

/// What a session has used, its summaries and its subagents counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// The tokens.
    #[serde(flatten)]
    pub usage: Usage,
    /// What they cost, as far as prices were configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

impl Totals {
    /// Adds what one model call, or a subagent, used.
    pub fn add(&mut self, usage: Option<&Usage>, cost: Option<Cost>) {
        if let Some(more) = usage {
            let sum = &mut self.usage;
            sum.input_tokens = sum.input_tokens.saturating_add(more.input_tokens);
            sum.output_tokens = sum.output_tokens.saturating_add(more.output_tokens);
            sum.cache_read_tokens = sum.cache_read_tokens.saturating_add(more.cache_read_tokens);
            sum.cache_write_tokens = sum.cache_write_tokens.saturating_add(more.cache_write_tokens);
            sum.total_tokens = sum.total_tokens.saturating_add(more.total_tokens);
        }
        if let Some(Cost(more)) = cost {
            self.cost = Some(Cost(self.cost.unwrap_or_default().0.saturating_add(more)));
        }
    }

    /// Whether anything was used.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The share of the tokens read that came from the provider's cache, in percent; `None` when none were read.
    pub fn cache_hit_percent(&self) -> Option<u64> {
        let usage = &self.usage;
        let read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
        (read > 0).then(|| usage.cache_read_tokens.saturating_mul(100) / read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_add_up_exactly_and_read_as_they_are_written() {
        let mut totals = Totals::default();
        for _ in 0..10 {
            totals.add(None, Some(Cost::new(0.1)));
        }
        assert_eq!(totals.cost, Some(Cost::new(1.0)));
        let json = serde_json::to_string(&totals).unwrap();
        assert!(json.ends_with(r#""totalTokens":0,"cost":1.0}"#), "{json}");
        assert_eq!(serde_json::from_str::<Totals>(&json).unwrap(), totals);
        assert_eq!(Cost::new(f64::NAN), Cost::default());
    }

    #[test]
    fn the_share_of_the_cache_is_of_what_was_read() {
        let usage = Usage {
            input_tokens: 20,
            output_tokens: 1000,
            cache_read_tokens: 60,
            cache_write_tokens: 20,
            total_tokens: 1100,
        };
        let mut totals = Totals::default();
        assert_eq!(totals.cache_hit_percent(), None);
        totals.add(Some(&usage), None);
        assert_eq!(totals.cache_hit_percent(), Some(60));
    }
}
