// The commands of TeX that stand for one character or a word, and letters in other alphabets. Pure.

const named = (text) => new Map(text.trim().split(/\s+/).map((pair) => pair.split("=")));

export const LETTERS = named(`
  alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι kappa=κ lambda=λ mu=μ nu=ν xi=ξ pi=π
  varpi=ϖ rho=ρ varrho=ϱ sigma=σ varsigma=ς tau=τ upsilon=υ phi=ϕ varphi=φ chi=χ psi=ψ omega=ω Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ
  Pi=Π Sigma=Σ Upsilon=Υ Phi=Φ Psi=Ψ Omega=Ω infty=∞ partial=∂ nabla=∇ ell=ℓ hbar=ℏ emptyset=∅ varnothing=∅ Re=ℜ Im=ℑ aleph=ℵ
  top=⊤ bot=⊥ dots=… ldots=… cdots=⋯ vdots=⋮ ddots=⋱ angle=∠ degree=° prime=′ checkmark=✓ square=□ triangle=△`);
export const OPERATORS = named(`
  times=× cdot=⋅ div=÷ pm=± mp=∓ ast=∗ star=⋆ circ=∘ bullet=∙ oplus=⊕ otimes=⊗ odot=⊙ cup=∪ cap=∩ setminus=∖ wedge=∧ land=∧ vee=∨
  lor=∨ neg=¬ lnot=¬ le=≤ leq=≤ leqslant=⩽ ge=≥ geq=≥ geqslant=⩾ ne=≠ neq=≠ ll=≪ gg=≫ approx=≈ sim=∼ simeq=≃ cong=≅ equiv=≡ propto=∝
  in=∈ notin=∉ ni=∋ subset=⊂ subseteq=⊆ supset=⊃ supseteq=⊇ to=→ rightarrow=→ longrightarrow=⟶ leftarrow=← gets=← leftrightarrow=↔
  Rightarrow=⇒ implies=⟹ Leftarrow=⇐ Leftrightarrow=⇔ iff=⟺ mapsto=↦ uparrow=↑ downarrow=↓ forall=∀ exists=∃ nexists=∄ mid=∣ nmid=∤
  parallel=∥ perp=⟂ vdash=⊢ models=⊨ therefore=∴ because=∵ triangleq=≜ coloneqq=≔ colon=: prec=≺ succ=≻ int=∫ iint=∬ oint=∮`);
// With limits below and above in a displayed formula.
export const LARGE = named(`sum=∑ prod=∏ coprod=∐ bigcup=⋃ bigcap=⋂ bigoplus=⨁ bigotimes=⨂ bigvee=⋁ bigwedge=⋀`);
export const LIMITS = new Set("lim max min sup inf limsup liminf argmax argmin det gcd Pr".split(" "));
export const FUNCTIONS = new Set(`log ln lg exp sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan dim ker deg arg hom
  mod bmod`.split(/\s+/));
export const FENCES = new Map([
  ...named("langle=⟨ rangle=⟩ lfloor=⌊ rfloor=⌋ lceil=⌈ rceil=⌉ lvert=| rvert=| vert=| lVert=‖ rVert=‖ Vert=‖ lbrace={ rbrace=} lbrack=[ rbrack=]"),
  ...[..."{}|"].map((char) => [char, char === "|" ? "‖" : char]),
]);
export const ACCENTS = named("hat=^ widehat=^ tilde=~ widetilde=~ bar=¯ overline=¯ vec=→ dot=˙ ddot=¨ check=ˇ breve=˘ overbrace=⏞ overrightarrow=→");
export const BELOW = named("underline=_ underbrace=⏟");
export const SPACES = new Map([[",", 0.17], [":", 0.22], [">", 0.22], [";", 0.28], [" ", 0.28], ["!", 0], ["quad", 1], ["qquad", 2]]);

// The first capital, small letter and digit of Unicode's mathematical alphabets.
const ALPHABETS = { bf: [0x1d400, 0x1d41a, 0x1d7ce], bb: [0x1d538, 0x1d552, 0x1d7d8], cal: [0x1d49c, 0x1d4b6], frak: [0x1d504, 0x1d51e], sf: [0x1d5a0, 0x1d5ba, 0x1d7e2], tt: [0x1d670, 0x1d68a, 0x1d7f6] };
// Letters that had a place before.
const OLDER = { bb: "C=ℂ H=ℍ N=ℕ P=ℙ Q=ℚ R=ℝ Z=ℤ", cal: "B=ℬ E=ℰ F=ℱ H=ℋ I=ℐ L=ℒ M=ℳ R=ℛ e=ℯ g=ℊ o=ℴ", frak: "C=ℭ H=ℌ I=ℑ R=ℜ Z=ℨ" };
const FONTS = { mathbf: "bf", boldsymbol: "bf", bm: "bf", mathbb: "bb", mathcal: "cal", mathscr: "cal", mathfrak: "frak", mathsf: "sf", mathtt: "tt" };

export const isFont = (name) => Object.hasOwn(FONTS, name);

// A letter or digit in the alphabet of a command such as \mathbb; other characters stay.
export function inFont(char, name) {
  const font = FONTS[name];
  const older = named(OLDER[font] ?? "").get(char);
  if (older) return older;
  const kind = [/[A-Z]/, /[a-z]/, /[0-9]/].findIndex((range) => range.test(char));
  const first = ALPHABETS[font][kind];
  return first ? String.fromCodePoint(first + char.charCodeAt(0) - "Aa0".charCodeAt(kind)) : char;
}
