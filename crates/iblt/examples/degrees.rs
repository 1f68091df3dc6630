//! Some keys matter more: they get more hash locations, and GET finds them more often (footnote 5 of the paper).
//!
//! A key of d cells is found when one of them holds nothing else: with 1 - (1 - e^-x)^d, where x is how many keys a
//! cell holds on average. The more cells some have, the fuller are those of all.

use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{ChosenDegrees, Degrees, Layout, Placement, Rule, SecretHash, Sums, Table};

const KEY_COUNT: u64 = 10_000;

/// Every tenth article sells well.
fn sells_well(article: u64) -> bool {
    article.is_multiple_of(10)
}

fn main() {
    let cell_count = 4 * KEY_COUNT as u32;
    println!("{KEY_COUNT} articles in {cell_count} cells; GET, by an article's own cells, finds");
    for degree in [4, 6, 8, 10, 12] {
        // The shares that the table is laid out for: nine articles in four cells for one in more.
        let degrees = Degrees::new(&[(4, 9), (degree, 1)]).expect("they are shares");
        let hash =
            ChosenDegrees::new(
                SecretHash::new(&Secret::REPLAY),
                move |article: &u64| {
                    if sells_well(*article) { degree.into() } else { 4 }
                },
            );
        let layout = Layout::new(Placement::Chosen(degrees), cell_count);
        let mut stock = Table::<Sums<u64, u64>, _>::new(layout, hash);
        (0..KEY_COUNT).for_each(|article| stock.insert(&article, article % 100));
        let known = |is_asked_for: &dyn Fn(u64) -> bool| {
            let articles: Vec<u64> = (0..KEY_COUNT).filter(|article| is_asked_for(*article)).collect();
            let known = articles.iter().filter(|article| stock.get_plain(article).value() == Some(*article % 100));
            100.0 * known.count() as f64 / articles.len() as f64
        };
        let (often, seldom) = (known(&sells_well), known(&|article| !sells_well(article)));
        let load = (0.9 * 4.0 + 0.1 * f64::from(degree)) * KEY_COUNT as f64 / f64::from(cell_count);
        let [formula, formula_of_4] = [i32::from(degree), 4].map(|d| 100.0 * (1.0 - (1.0 - (-load).exp()).powi(d)));
        println!(
            "  {often:5.1} % of those in {degree:2} cells (formula {formula:.1} %), {seldom:.1} % of those in 4 ({formula_of_4:.1} %)"
        );
        assert!(stock.list(Rule::Aggregates).is_complete());
    }
}
